"""Small environments that show one difficulty each."""
