"""Draw charts as plotly figures."""
