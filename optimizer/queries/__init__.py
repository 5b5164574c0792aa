"""The read side: what pages, reports, the API and prompts ask of the rows, computed once for all of them."""
