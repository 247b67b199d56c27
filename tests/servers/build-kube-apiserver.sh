#!/bin/sh
# kube-apiserver from Debian's own source package, which no binary package carries: build-kube-apiserver.sh FOLDER
# Wants a Debian of version 12 with `deb-src` among its sources, root (it installs Go and etcd), 3 GB and ten minutes.
set -eu
folder=$(mkdir -p "$1" && cd "$1" && pwd)
[ ! -x "$folder/kube-apiserver" ] || exit 0
apt-get install -y -qq --no-install-recommends golang-1.19-go etcd-server golang-github-modern-go-reflect2-dev dpkg-dev >/dev/null
cd "$folder"
apt-get source -qq kubernetes
mkdir -p go/src/k8s.io
rm -rf go/src/k8s.io/kubernetes
mv kubernetes-*/ go/src/k8s.io/kubernetes
cd go/src/k8s.io/kubernetes
# The copy that comes with it crashes under this Go as soon as a resource of one's own is served.
rm -rf vendor/github.com/modern-go/reflect2
cp -r /usr/share/gocode/src/github.com/modern-go/reflect2 vendor/github.com/modern-go/reflect2
PATH=/usr/lib/go-1.19/bin:$PATH GOPATH="$folder/go" GOCACHE="$folder/cache" GO111MODULE=off GOFLAGS= \
    go build -o "$folder/kube-apiserver" ./cmd/kube-apiserver
rm -rf "$folder/go" "$folder/cache"
