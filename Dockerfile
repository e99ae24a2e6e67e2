# syntax=docker/dockerfile:1
FROM python:3.12-slim-bookworm AS build
WORKDIR /src
RUN python -m venv /opt/lrbs
# Dependencies first, so that a change of the code does not install them again.
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN --mount=type=cache,target=/root/.cache/pip \
    mkdir -p app/python solver migrations && touch app/__init__.py solver/__init__.py migrations/__init__.py && \
    /opt/lrbs/bin/pip install -c constraints.txt ".[onnx,plots,postgres,serve]" && \
    /opt/lrbs/bin/pip uninstall -y lrbs
COPY app app
COPY solver solver
COPY migrations migrations
RUN --mount=type=cache,target=/root/.cache/pip \
    /opt/lrbs/bin/pip install --no-deps -c constraints.txt .

FROM python:3.12-slim-bookworm
RUN useradd --uid 10001 --create-home --home-dir /var/lib/lrbs lrbs && install -d -o lrbs -g lrbs /data
COPY --from=build /opt/lrbs /opt/lrbs
ENV PATH=/opt/lrbs/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    LRBS_DATA_DIR=/data \
    LRBS_HOST=0.0.0.0 \
    LRBS_PORT=8000 \
    LRBS_LOG_FORMAT=json
USER lrbs
WORKDIR /var/lib/lrbs
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import httpx; httpx.get('http://127.0.0.1:8000/readyz', timeout=4).raise_for_status()"]
ENTRYPOINT ["lrbs"]
CMD ["serve"]
