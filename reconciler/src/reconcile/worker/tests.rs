//! Tests of the worker: a model of the queue under random kills, and the real loop.
