"""Model versions and the bundles that hold them."""
