"""The fault lab: small language models, really trained, each with one known fault or none."""
