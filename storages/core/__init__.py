"""What storages are made of. Knows no algorithm."""
