# Three images from one build:
#
#   docker build --target junction        -t junction .          the program alone: for remote upstreams, and for commands that you add
#   docker build --target junction-node   -t junction-node .     with Node, for upstreams that npx starts
#   docker build --target junction-python -t junction-python .   with Python and uv, for upstreams that uvx starts
#
# Without keys it listens on loopback only, so that a published port (-p) reaches nothing: see cmd/junction/deploy/README.md.
# To pin a base image, pass it with its digest: --build-arg NODE=node:22-slim@sha256:…

ARG GO=golang:1.26
ARG NODE=node:22-slim
ARG PYTHON=python:3.13-slim

FROM ${GO} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# Static, so that it runs on an empty root; -trimpath, so that the same source gives the same bytes wherever it lies.
RUN CGO_ENABLED=0 go build -trimpath -o /out/ ./cmd/junction ./cmd/junction-pack
# The key that seals session ids is kept in junction/key below XDG_STATE_HOME. A new volume takes over the owner and the mode of what it covers.
RUN install -d -m 0700 /out/state

# npx needs a home folder, for its cache, and the user "node" of the base image has one.
FROM ${NODE} AS junction-node
COPY --from=build /out/junction /out/junction-pack /usr/local/bin/
COPY --from=build --chown=node:node /out/state /var/lib/junction
ENV XDG_STATE_HOME=/var/lib
VOLUME /var/lib/junction
USER node
WORKDIR /home/node
# It finds the running process by its record in the state directory, whatever the configuration file says.
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s CMD ["/usr/local/bin/junction", "health"]
ENTRYPOINT ["/usr/local/bin/junction"]

# The user and its folder are those of junction-node, so that both images fit the same volumes. /home/node has the cache of uvx.
FROM ${PYTHON} AS junction-python
RUN pip install --no-cache-dir uv==0.13.9 && useradd --uid 1000 --create-home node
COPY --from=build /out/junction /out/junction-pack /usr/local/bin/
COPY --from=build --chown=node:node /out/state /var/lib/junction
ENV XDG_STATE_HOME=/var/lib
VOLUME /var/lib/junction
USER node
WORKDIR /home/node
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s CMD ["/usr/local/bin/junction", "health"]
ENTRYPOINT ["/usr/local/bin/junction"]

# The last stage is what a build without --target makes.
FROM scratch AS junction
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/junction /out/junction-pack /usr/local/bin/
COPY --from=build --chown=65532:65532 /out/state /var/lib/junction
ENV XDG_STATE_HOME=/var/lib PATH=/usr/local/bin
VOLUME /var/lib/junction
USER 65532:65532
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s CMD ["/usr/local/bin/junction", "health"]
ENTRYPOINT ["/usr/local/bin/junction"]
