"""What a model has learnt, read off its attention and its positional encodings."""
