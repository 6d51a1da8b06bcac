"""What a fit says: draws, predictions, the summary with its checks and advice, files."""
