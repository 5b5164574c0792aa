"""Answer the questions that pages, reports, the API and prompts ask of the rows, once for all of them."""
