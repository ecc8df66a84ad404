"""The report of a search: what was found, how good it is, and how sure that is.

SearchResult, Evidence ──► proof ──► verdict, leaderboard, figures, tables
                                       └──► search.json, leaderboard.csv, report.md, report.html
"""

from reparto.search._report._write import write_report

__all__ = ["write_report"]
