"""What the records of a run say, as data: a report draws it, CSV and Markdown print it."""
