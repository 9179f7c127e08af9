"""What a record is and how it gets in and out: schema, batches, planning, readers, staging, writers, text kernels."""
