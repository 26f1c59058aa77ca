"""The command line: each command parses, calls the library and writes. Only here are streams and exit codes known."""
