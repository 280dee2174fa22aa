"""Findings in, documents out: report.html and report.md. Needs jinja2 and plotly, no framework."""
