# The Go image is an argument, so that a build that can pull nothing brings its
# own. It has to hold the Go tree and the CA certificates of Debian.
ARG GO_IMAGE=docker.io/library/golang:1.26

FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# No paths, no VCS stamp, no build id: the same source and the same Go give the
# same bytes wherever they are built.
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags='-s -w -buildid=' -o /out/nsmgr-proxy .

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/nsmgr-proxy /bin/nsmgr-proxy
# By number, because there is no passwd file and because runAsNonRoot cannot
# check a name. This user may not create the default socket in the root folder:
# set NSM_LISTEN_ON, as the manifests do, or give it a folder of its own.
USER 65532:65532
# A relative NSM_MAP_IP_FILE_PATH, such as the default, counts from here.
WORKDIR /
ENTRYPOINT ["/bin/nsmgr-proxy"]
