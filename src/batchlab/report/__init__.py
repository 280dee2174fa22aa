"""Findings in, documents out: report.html and report.md. Plots are data here; the reader's browser draws them."""
