"""Files of the write-ahead log: records, segments, the lock, and small files of plain data."""
