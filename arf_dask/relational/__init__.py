"""Several tables, and rows in sequence: the graph of tables, models of children, and blocks of whole families."""
