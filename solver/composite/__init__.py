"""A similarity of several terms: facets, pairs, judgements and a given cosine, learned together."""
