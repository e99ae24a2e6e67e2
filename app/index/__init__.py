"""Index backends behind the `GalleryIndex` port."""
