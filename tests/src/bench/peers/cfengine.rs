//! Policies for `cf-agent`.

use crate::bench::reference::{FILES_DIR, INPUTS, package_names, unit_names};

const LIBRARY: &str = "/usr/share/cfengine3/masterfiles/lib/stdlib.cf";

/// A promise for everything, with the bodies and bundles of the standard library.
pub(super) fn plain(version: &str) -> String {
    let packages = format!(
        r#"
  packages:
    "$(packages)"
      package_policy => "addupdate",
      package_select => "==",
      package_version => "{version}",
      package_method => listed;
"#
    );
    let units = r#"
  methods:
    "$(units)" usebundle => systemd_services("$(units)", "start");
"#;
    // The script has read the lists of packages already.
    policy(&packages, units)
        + r#"
body package_method listed
{
  inherit_from => apt_get;
  package_list_update_ifelapsed => "10080";
}
"#
}

/// One question for all packages and one for all units; the answers decide whether anything is done.
pub(super) fn shell(version: &str) -> String {
    let wanted: Vec<String> = package_names().iter().map(|name| format!("{name}={version}")).collect();
    let wanted = wanted.join(" ");
    let packages = format!(
        r#"
  classes:
    "packages_differ" expression => returnszero("/bin/sh {INPUTS}/{version}/packages-differ.sh", "noshell");
    "units_differ" expression => returnszero("/bin/sh {INPUTS}/{version}/units-differ.sh", "noshell");

  commands:
    packages_differ::
      "/usr/bin/apt-get -qq -y --no-install-recommends install {wanted}";
"#
    );
    let units = format!(
        r#"
  commands:
    units_differ::
      "/bin/systemctl enable --now {}";
"#,
        unit_names().join(" ")
    );
    policy(&packages, &units)
}

/// Packages, then the files, then units: a bundle for each, because within one the kinds come in an order of their own.
fn policy(packages: &str, units: &str) -> String {
    let list = |names: Vec<String>| {
        let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
        quoted.join(", ")
    };
    let (package_list, unit_list) = (list(package_names()), list(unit_names()));
    format!(
        r#"body common control
{{
  inputs => {{ "{LIBRARY}" }};
  bundlesequence => {{ "software", "configuration", "services" }};
}}

bundle agent software
{{
  vars:
    "packages" slist => {{ {package_list} }};
{packages}}}

bundle agent configuration
{{
  files:
    "{FILES_DIR}/."
      create => "true";
    "{FILES_DIR}"
      copy_from => local_dcp("{INPUTS}/files"),
      depth_search => recurse("inf");
    "/etc/sysctl.d"
      copy_from => local_dcp("{INPUTS}/sysctl.d"),
      depth_search => recurse("inf"),
      classes => if_repaired("parameters_differ");

  commands:
    parameters_differ::
      "/sbin/sysctl -q --system"
        contain => silent;
}}

bundle agent services
{{
  vars:
    "units" slist => {{ {unit_list} }};
{units}}}
"#
    )
}
