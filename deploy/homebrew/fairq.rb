# For a tap of your own: brew tap-new you/tap, copy this file into its Formula, and
# brew install you/tap/fairq.  It installs the extension for Homebrew's PostgreSQL 17.
class Fairq < Formula
  desc "Fair queue for tasks of many tenants, inside PostgreSQL"
  homepage "https://github.com/fairq/fairq"
  url "https://github.com/fairq/fairq.git", tag: "v1.0.0"
  license "PostgreSQL"
  head "https://github.com/fairq/fairq.git", branch: "main"

  depends_on "postgresql@17"

  def postgresql
    Formula["postgresql@17"]
  end

  def install
    pg_config = "PG_CONFIG=#{postgresql.opt_bin}/pg_config"
    system "make", pg_config
    # Homebrew's server finds extensions in these directories
    system "make", pg_config, "install",
           "pkglibdir=#{lib}/#{postgresql.name}", "datadir=#{share}/#{postgresql.name}"
  end

  test do
    ENV["LC_ALL"] = "C"
    system postgresql.opt_bin/"initdb", "-D", testpath/"data"
    (testpath/"data/postgresql.conf").append_lines <<~CONF
      listen_addresses = ''
      unix_socket_directories = '#{testpath}'
    CONF
    system postgresql.opt_bin/"pg_ctl", "-D", testpath/"data", "-l", testpath/"log", "-w", "start"
    begin
      system postgresql.opt_bin/"psql", "-X", "-h", testpath, "-c", "CREATE EXTENSION fairq", "postgres"
    ensure
      system postgresql.opt_bin/"pg_ctl", "-D", testpath/"data", "stop"
    end
  end
end
