"""Tables of the contents of runs, data sets and storages, for a terminal."""
