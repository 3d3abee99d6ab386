//! Tests of the API through its router, on a real database.
