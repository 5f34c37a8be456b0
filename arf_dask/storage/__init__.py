"""Model files, Parquet data sets, lakehouse tables, and the local and remote stores that hold them."""
