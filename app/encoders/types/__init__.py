"""One module for each type of encoder, found by `app.encoders.registry`: each has an `ENCODER`."""
