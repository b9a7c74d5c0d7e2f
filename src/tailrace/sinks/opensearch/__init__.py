"""Documents of an OpenSearch cluster, one for each row."""
