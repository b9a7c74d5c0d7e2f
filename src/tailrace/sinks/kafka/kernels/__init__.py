"""Compiled kernels of the Kafka sink."""
