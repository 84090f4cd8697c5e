"""What exactly-once sinks share: state, transactions, rows. Independent of Ray and Spark."""
