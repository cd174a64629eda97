# The server and the command line, without anything that only tests or builds need.
FROM python:3.11-slim AS build
WORKDIR /src
# Dependencies first: they are built again only when the lock changes.
COPY requirements.serve.lock ./
RUN python -m venv /opt/podgate \
 && /opt/podgate/bin/pip install --disable-pip-version-check --no-cache-dir --require-hashes --requirement requirements.serve.lock
COPY pyproject.toml README.md LICENSE ./
COPY certs ./certs
COPY manifests ./manifests
COPY webhook ./webhook
RUN /opt/podgate/bin/pip install --disable-pip-version-check --no-cache-dir --no-deps --no-build-isolation . \
 && /opt/podgate/bin/pip uninstall --yes setuptools pip

FROM python:3.11-slim
LABEL org.opencontainers.image.title="podgate" \
      org.opencontainers.image.description="Admission-time scheduling interceptor for Kubernetes" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/podgate /opt/podgate
# A new volume inherits the owner of the folder that it is mounted on, so Podgate owns docker-compose.yml's keys.
RUN install --directory --owner=65532 --group=65532 --mode=0700 /pki
# The root file system may be read-only: nothing is written, not even compiled modules.
ENV PATH=/opt/podgate/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1
# As a number: Kubernetes can tell that this is not root.
USER 65532:65532
EXPOSE 8443 8081
ENTRYPOINT ["podgate"]
