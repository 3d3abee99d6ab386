//! Tests of the node controllers on a real database.
