"""A run in other people's formats: CSV, Parquet, JUnit XML, and traces for Perfetto."""
