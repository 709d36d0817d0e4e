"""What is wrong with traces: found, counted and, when asked, repaired."""
