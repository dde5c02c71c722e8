# The extension, for services.postgresql.extensions of NixOS:
#
#   services.postgresql.extensions = ps: [
#     (pkgs.callPackage ./fairq/deploy/nix { postgresql = config.services.postgresql.package; })
#   ];
{ lib, stdenv, postgresql }:

stdenv.mkDerivation {
  pname = "fairq";
  version = "1.0.0";
  src = lib.cleanSource ../..;

  # since NixOS 25.05 pg_config has a package of its own
  nativeBuildInputs = [ (postgresql.pg_config or postgresql) ];
  buildInputs = [ postgresql ];
  makeFlags = [ "with_llvm=no" ];
  # the server finds extensions in lib and share/postgresql/extension
  installFlags = [
    "pkglibdir=${placeholder "out"}/lib"
    "datadir=${placeholder "out"}/share/postgresql"
  ];

  meta = {
    description = "Fair queue for tasks of many tenants, inside PostgreSQL";
    homepage = "https://github.com/fairq/fairq";
    license = lib.licenses.postgresql;
    platforms = postgresql.meta.platforms;
  };
}
