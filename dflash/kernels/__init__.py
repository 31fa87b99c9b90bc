"""One door per operation: a torch reference, a compiled CPU form, later a CUDA form."""
