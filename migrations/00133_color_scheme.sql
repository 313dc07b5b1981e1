-- People choose light or dark pages once, for all their browsers.

-- +goose Up
ALTER TABLE users ADD color_scheme text NOT NULL DEFAULT '' CHECK (color_scheme IN ('', 'light', 'dark'));
