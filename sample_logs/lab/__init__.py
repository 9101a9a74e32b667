"""A tiny language model, really trained, whose log is written in Megatron-LM's layout."""
