"""What users are promised: the seeds' examples, the documents, the programs."""
