"""What the exercise notebook calls: measurements, comparisons, tables and figures.

The notebook holds the story and the questions; the work is here, so that cells stay short and each
number can be tested. Settings come from the environment (`settings`), results go to a run folder
(`results`).
"""
