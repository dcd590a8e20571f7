//! Rules in CEL: the forms of texts, and what must hold between the fields of a type.

use crate::text::{
    AbsolutePath, AccountName, DropinName, FileMode, ModuleName, PackageName, PackageVersion, RepositoryName,
    SysctlKey, UnitName,
};
use serde_json::{Value, json};

/// The form of a text.
pub(super) struct Form {
    format: &'static str,
    /// What it matches as a whole.
    pattern: &'static str,
    /// What must not occur in it; empty for nothing.
    forbidden: &'static str,
    /// How long it may be.
    pub(super) length: u64,
    message: &'static str,
}

const FORMS: [Form; 10] = [
    Form {
        format: AbsolutePath::FORMAT,
        pattern: r"^(/[^/\n]+)+$",
        forbidden: r"/[.][.]?(/|$)",
        length: 1024,
        message: "write a plain path from the root to a file, such as /etc/containerd/config.toml",
    },
    Form {
        format: FileMode::FORMAT,
        pattern: "^[0-7]{3,4}$",
        forbidden: "",
        length: 4,
        message: "write three or four octal digits in quotes, such as \"0644\"",
    },
    Form {
        format: UnitName::FORMAT,
        // Short, because the API server weighs it by its length; suffixes that systemd doesn't know are found later.
        pattern: r"^[\w:\\@][\w:.\\@-]*[.][a-z]+$",
        forbidden: "",
        length: 255,
        message: "write the full name of the unit with its suffix, such as kubelet.service",
    },
    Form {
        format: DropinName::FORMAT,
        pattern: "^[a-zA-Z0-9_@-][a-zA-Z0-9_.@-]*[.]conf$",
        forbidden: "",
        length: 255,
        message: "write a file name that ends with .conf, such as 10-nodelet.conf",
    },
    Form {
        format: PackageName::FORMAT,
        pattern: "^[a-zA-Z0-9][a-zA-Z0-9+._:-]*$",
        forbidden: "",
        length: 128,
        message: "write the name of a package: letters, digits and +-._, beginning with a letter or digit",
    },
    Form {
        format: PackageVersion::FORMAT,
        pattern: "^[a-zA-Z0-9*?][a-zA-Z0-9.+~^:_*?-]*$",
        forbidden: "",
        length: 128,
        message: "write the version as the package manager shows it, such as 1.7.24-1, or a glob such as 1.7.*",
    },
    Form {
        format: RepositoryName::FORMAT,
        pattern: "^[a-zA-Z0-9][a-zA-Z0-9_.-]*$",
        forbidden: "",
        length: 64,
        message: "write at most 64 letters, digits and -_., beginning with a letter or digit",
    },
    Form {
        format: AccountName::FORMAT,
        pattern: "^[a-zA-Z0-9_][a-zA-Z0-9_.-]*$",
        forbidden: "",
        length: 32,
        message: "write the name of a user or group, or its number in quotes",
    },
    Form {
        format: ModuleName::FORMAT,
        pattern: "^[a-zA-Z0-9_-]+$",
        forbidden: "",
        length: 64,
        message: "write the name of a kernel module as lsmod shows it, such as br_netfilter",
    },
    Form {
        format: SysctlKey::FORMAT,
        pattern: r"^[a-zA-Z0-9_/-]+([.][a-zA-Z0-9_/-]+)+$",
        forbidden: "",
        length: 128,
        message: "write the name of a kernel parameter with dots, such as net.ipv4.ip_forward",
    },
];

/// The form of a text with this `format`.
pub(super) fn of_format(format: &str) -> Option<&'static Form> {
    FORMS.iter().find(|form| form.format == format)
}

impl Form {
    fn condition(&self, text: &str) -> String {
        let matches = |pattern: &str| format!("{text}.matches({})", quoted(pattern));
        if self.forbidden.is_empty() {
            matches(self.pattern)
        } else {
            format!("{} && !{}", matches(self.pattern), matches(self.forbidden))
        }
    }

    /// The rule for a text.
    pub(super) fn rule(&self) -> Value {
        json!({"rule": self.condition("self"), "message": self.message})
    }

    /// The rule for the keys of a table.
    pub(super) fn rule_for_keys(&self) -> Value {
        json!({"rule": format!("self.all(key, {})", self.condition("key")), "message": self.message})
    }
}

/// A text in CEL that is taken as it is.
fn quoted(text: &str) -> String {
    format!("r'{text}'")
}

// What all gates ask for that go to an address.
const WEB: &str = "self.url.matches(r'^https?://[^/]')";
const WRITE_WEB: &str = "write the address with http:// or https://";
const SAFE: &str = "!(has(self.caBundle) || has(self.tokenSecretRef)) || self.url.startsWith('https://')";
const WRITE_SAFE: &str =
    "`caBundle` and `tokenSecretRef` go with https://: a token is not sent where everybody can read it";
const BUNDLE: &str = "!has(self.caBundle) || self.caBundle.contains('-----BEGIN CERTIFICATE-----')";
const WRITE_BUNDLE: &str = "write certificates in PEM, beginning with -----BEGIN CERTIFICATE-----";

/// What must hold between the fields of a type: the rule and what to write instead. `namespace` is a word
/// of the language, and so written with underscores.
const BETWEEN_FIELDS: [(&str, &str, &str); 29] = [
    ("File", "has(self.content) != has(self.contentFrom)", "write exactly one of `content` and `contentFrom`"),
    (
        "File",
        "!has(self.encoding) || self.encoding != 'base64' || has(self.content)",
        "`contentFrom` is taken as it is: remove `encoding`",
    ),
    (
        "ContentFrom",
        "[has(self.secretRef), has(self.configMapRef), has(self.file)].filter(given, given).size() == 1",
        "write exactly one of `secretRef`, `configMapRef` and `file`",
    ),
    (
        "KeySource",
        "[has(self.secretRef), has(self.inline), has(self.file)].filter(given, given).size() == 1",
        "write exactly one of `inline`, `file` and `secretRef`",
    ),
    (
        "Repository",
        "has(self.apt) || has(self.dnf) || (has(self.state) && self.state == 'absent')",
        "say where the packages are: add `apt`, `dnf` or both, or `state: absent`",
    ),
    (
        "Package",
        "!has(self.state) || self.state == 'present' || !(has(self.version) || has(self.hold) || has(self.allowDowngrade))",
        "a package that is to be absent has no `version`, `hold` or `allowDowngrade`: remove them, or `state: absent`",
    ),
    (
        "Package",
        "!has(self.allowDowngrade) || !self.allowDowngrade || has(self.version)",
        "without `version` nothing is ever downgraded: add the version, or remove `allowDowngrade`",
    ),
    (
        "Unit",
        "!has(self.masked) || !self.masked || !((has(self.enabled) && self.enabled) || (has(self.running) && self.running) || has(self.content))",
        "a masked unit can't be `enabled`, `running` or have `content`: remove those, or `masked`",
    ),
    (
        "Unit",
        "has(self.enabled) || has(self.running) || has(self.masked) || has(self.content) || has(self.dropins)",
        "the unit says nothing: add `enabled`, `running`, `masked`, `content` or `dropins`, or remove it",
    ),
    (
        "Health",
        "!has(self.stableSeconds) || !has(self.timeoutSeconds) || self.stableSeconds < self.timeoutSeconds",
        "the checks could never pass in time: write less for `stableSeconds` than for `timeoutSeconds`",
    ),
    (
        "SelectorRequirement",
        "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
        "`In` and `NotIn` need `values`; `Exists` and `DoesNotExist` have none",
    ),
    (
        "NodeSetSpec",
        "has(self.selector) || has(self.replicas)",
        "say which nodes: add a `selector` for Nodes that are there, or `replicas` for nodes that are made",
    ),
    (
        "Amount",
        "type(self) == int ? self >= 0 : string(self).matches(r'^(100|[0-9]{1,2})%$')",
        "write a number of nodes, such as 1, or a part of them, such as \"10%\"",
    ),
    (
        "Gate",
        "[has(self.http), has(self.object), has(self.prometheus), has(self.job), has(self.units)].filter(given, given).size() == 1",
        "write exactly one of `http`, `object`, `prometheus`, `job` and `units`",
    ),
    (
        "Gate",
        "!has(self.job) || self.name.matches(r'^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",
        "a gate with a `job` gives the Job its name: write the gate's in small letters, digits and -",
    ),
    (
        "ObjectGate",
        "has(self.condition) != has(self.cel)",
        "write exactly one of `condition`, such as Available, and `cel`, such as object.status.readyReplicas == object.spec.replicas",
    ),
    (
        "ObjectGate",
        "self.kind != 'Secret' || self.apiVersion != 'v1'",
        "gates don't look into Secrets: what an expression says of one could be read in the set's status",
    ),
    (
        "ObjectGate",
        "self.apiVersion.matches(r'^([a-z0-9][a-z0-9.-]*/)?v[a-z0-9]+$')",
        "write `apiVersion` such as v1 or apps/v1",
    ),
    (
        "ObjectGate",
        r"!self.kind.matches(r'[/?#%\s]|[.][.]') && !self.name.matches(r'[/?#%\s]|[.][.]') && (!has(self.__namespace__) || self.__namespace__.matches(r'^[a-z0-9-]+$'))",
        "write `kind`, `namespace` and `name` without /, ?, #, %, spaces and ..",
    ),
    (
        "SecretKey",
        "self.name.matches(r'^[a-z0-9][a-z0-9.-]*$') && !self.name.contains('..')",
        "write the name of a Secret: small letters, digits, - and .",
    ),
    (
        "JobGate",
        "self.__namespace__.matches(r'^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",
        "write the name of a namespace: small letters, digits and -",
    ),
    ("HttpGate", WEB, WRITE_WEB),
    ("HttpGate", SAFE, WRITE_SAFE),
    ("HttpGate", BUNDLE, WRITE_BUNDLE),
    ("PrometheusGate", WEB, WRITE_WEB),
    ("PrometheusGate", SAFE, WRITE_SAFE),
    ("PrometheusGate", BUNDLE, WRITE_BUNDLE),
    (
        "Window",
        "self.start.matches(r'^([01][0-9]|2[0-3]):[0-5][0-9]$')",
        "write `start` as hours and minutes, such as \"02:00\"",
    ),
    (
        "NodeStateSpec",
        "!has(self.grant) || self.step == 'Apply'",
        "a grant goes with `step: Apply`: set the step, or remove the grant",
    ),
];

/// What must hold between the fields of the type of this name.
pub(super) fn of_type(name: &str) -> Vec<Value> {
    let own = BETWEEN_FIELDS.iter().filter(|(of, ..)| *of == name);
    own.map(|(_, rule, message)| json!({"rule": rule, "message": message})).collect()
}
