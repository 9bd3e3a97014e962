use std::collections::BTreeSet;

use ratified_protocol::Code;
use serde_json::Value;

use super::*;

fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

fn calls(document: &Value) -> Vec<(String, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    let methods = ["get", "put", "post", "delete", "patch", "head", "options", "trace"];
    let mut calls = Vec::new();
    for (path, item) in paths {
        for (method, call) in item.as_object().unwrap().iter().filter(|(m, _)| methods.contains(&m.as_str())) {
            calls.push((format!("{} {path}", method.to_uppercase()), path.as_str(), call));
        }
    }
    calls
}

fn table() -> Vec<(String, &'static routes::Route)> {
    let with_path = |resource: &'static Resource| {
        resource.routes.iter().map(|route| (format!("{} {}", route.method, resource.path), route))
    };
    RESOURCES.iter().flat_map(with_path).collect()
}

#[test]
fn the_document_and_the_router_have_the_same_calls() {
    let document = document();
    let described: BTreeSet<_> = calls(&document).into_iter().map(|(call, ..)| call).collect();
    let routed: BTreeSet<_> = table().into_iter().map(|(call, _)| call).collect();
    assert_eq!(described, routed);
}

#[test]
fn the_document_has_every_problem_code_and_no_other() {
    let document = document();
    let described: Vec<_> = document["components"]["schemas"]["Code"]["enum"].as_array().unwrap().iter().collect();
    let codes: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(described, codes);
    for (name, _, call) in calls(&document) {
        for (status, response) in call["responses"].as_object().unwrap().iter().filter(|(s, _)| !s.starts_with('2')) {
            for code in response["description"].as_str().unwrap().split(", ") {
                let known = Code::ALL.iter().find(|c| c.as_str() == code).unwrap_or_else(|| panic!("{name}: {code}"));
                assert_eq!(known.status().to_string(), *status, "{name}: {code}");
            }
        }
    }
}

#[test]
fn the_document_and_the_router_take_the_same_parameters() {
    let document = document();
    let parameter = |value: &Value| match value["$ref"].as_str() {
        Some(path) => document.pointer(path.strip_prefix('#').unwrap()).unwrap().clone(),
        None => value.clone(),
    };
    for (name, path, call) in calls(&document) {
        let own = call["parameters"].as_array().into_iter().flatten();
        let shared = document["paths"][path]["parameters"].as_array().into_iter().flatten();
        let all: Vec<Value> = own.chain(shared).map(parameter).collect();
        let named = |place: &str| -> BTreeSet<String> {
            let there = all.iter().filter(|p| p["in"] == place);
            there.map(|p| p["name"].as_str().unwrap().to_owned()).collect()
        };
        let (_, route) = table().into_iter().find(|(call, _)| *call == name).unwrap();
        let query: BTreeSet<String> = route.query.iter().map(|q| (*q).to_owned()).collect();
        assert_eq!(named("query"), query, "{name}");
        let segments: BTreeSet<String> =
            path.split('/').filter_map(|s| Some(s.strip_prefix('{')?.strip_suffix('}')?.to_owned())).collect();
        assert_eq!(named("path"), segments, "{name}");
        assert_eq!(call["requestBody"].is_object(), route.takes != Takes::Nothing, "{name}");
        let asks_the_engine = matches!(route.action, Action::Engine(_));
        let header = BTreeSet::from_iter(asks_the_engine.then(|| "Ratified-Known".to_owned()));
        assert_eq!(named("header"), header, "{name}");
        let changed = call["responses"]["409"]["description"].as_str().is_some_and(|d| d.contains("STORE_CHANGED"));
        assert_eq!(changed, asks_the_engine, "{name}");
    }
}

#[test]
fn every_reference_of_the_document_leads_somewhere() {
    fn walk(document: &Value, value: &Value) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(path)) = members.get("$ref") {
                    assert!(document.pointer(path.strip_prefix('#').unwrap()).is_some(), "{path}");
                }
                members.values().for_each(|v| walk(document, v));
            }
            Value::Array(items) => items.iter().for_each(|v| walk(document, v)),
            _ => {}
        }
    }
    let document = document();
    walk(&document, &document);
}
