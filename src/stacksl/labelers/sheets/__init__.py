"""Questions to people as files a spreadsheet opens, and their answers back."""
