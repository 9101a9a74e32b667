"""One module a command; each defines `command` and imports the stages it needs inside."""
