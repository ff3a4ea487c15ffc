"""The theorems, lemmas and figures of the papers, each as a thing that runs."""
