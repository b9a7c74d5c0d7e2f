"""What message systems share: a batch's division by key, its messages, the job that writes them."""
