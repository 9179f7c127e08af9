"""Record stages that judge one record by rules; one module per family of rules."""
