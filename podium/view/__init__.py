"""What a person looks at: the summary, the swim lanes, the page."""
