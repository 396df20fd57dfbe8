"""What runs, data sets and storages hold, as tables for a terminal."""
