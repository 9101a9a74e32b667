"""loganalyze: offline log analytics and anomaly diagnosis for LLM training runs."""

__version__ = "0.1.0"
