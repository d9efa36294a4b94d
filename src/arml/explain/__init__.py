"""Look inside a trained learner: ARML's meta-knowledge graph, HSML's tree, MUMOMAML's task codes,
MT-Net's masks."""
