"""What several algorithms of this family are made of, and what one of them is too long to hold."""
